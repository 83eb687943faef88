"""Training of one variant within a time budget; steps recorded as CUDA graphs for each graph and band of K."""
from __future__ import annotations
import math, time
import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from data import Loaded, generator, index
from episodes import Batch, Episodes
from model import Tasks, Trail3

DEFAULTS = dict(width=32, layers=6, relation_layers=2, streams=1, node=False, names=False, cosines=False, draws="uniform",
                bands=[16, 256, 4096], band_shares=[.5, .25, .25], all_share=.3, skew=.25, names_drop=.3, sample=32,
                tasks=4, queries=8, candidates=2048, lr=2e-3, decay=1e-4, clip=1.0, average=.998, seed=0, steps=10 ** 9, workers=5,
                pool="train", max_triples=250_000, named={"nell-both": .15, "fb-both": .08, "attack-few": .04}, stages=None, start=None,
                eval={}, eval_seconds=60, train_seconds=None)

DOMAINS = ("wikidata", "dbpedia", "freebase", "bio", "cyber", "finance", "sport", "games", "family", "kinship", "software")


def coarse(domain):
    d = domain.lower()
    if "kin" in d: return "family"
    return next((k for k in DOMAINS if k in d), d)


def mixture(cfg):
    """Names of graphs and their shares: named ones as given, the rest by domain (root of its graphs), then evenly."""
    names, shares = list(cfg["named"]), list(cfg["named"].values())
    if cfg["pool"] != "none":
        rows = [r for r in index() if r["use"] == "train" and r["triples"] <= cfg["max_triples"] and r["name"] not in names]
        if isinstance(cfg["pool"], list):
            rows = [r for r in rows if r["name"] in cfg["pool"]]
        by = {}
        for r in rows: by.setdefault(coarse(r["domain"]), []).append(r)
        total = sum(len(v) ** .5 for v in by.values())
        rest = max(0, 1 - sum(shares))
        for v in by.values():
            for r in v:
                names.append(r["name"]); shares.append(rest * len(v) ** .5 / total / len(v))
    return names, shares


def packed(batch: Batch):
    """One buffer of bytes: one copy to the device. (graph, band, meta, buffer)"""
    meta, at, parts = [], 0, []
    for x in batch.tensors:
        size = x.numel() * x.element_size()
        meta.append((str(x.dtype).removeprefix("torch."), tuple(x.shape), at, size))
        at += -(-size // 64) * 64
        parts.append(x)
    buffer = np.zeros(at, np.uint8)
    for (_, _, a, size), x in zip(meta, parts):
        buffer[a:a + size] = np.ascontiguousarray(x.numpy()).reshape(-1).view(np.uint8)
    return batch.graph, batch.band, meta, torch.from_numpy(buffer)


def unpacked(graph, band, meta, buffer) -> Batch:
    t = [buffer[a:a + size].view(getattr(torch, d)).view(shape) for d, shape, a, size in meta]
    return Batch(graph, band, Tasks(*t[:-2]), t[-2], t[-1])


class Packed(torch.utils.data.Dataset):
    def __init__(self, episodes): self.episodes = episodes
    def __getitem__(self, step): return packed(self.episodes[step])


class Learner:
    def __init__(self, cfg, prepared, device, say):
        self.cfg, self.device, self.say, self.prepared = cfg, torch.device(device), say, prepared
        self.on_gpu = self.device.type == "cuda"
        self.dtype = torch.bfloat16 if self.on_gpu else torch.float32
        torch.manual_seed(int(generator(cfg["seed"], "weights").integers(1 << 31)))
        self.net = net_of(cfg).to(device)
        if cfg["start"]:
            from safetensors.torch import load_file
            self.net.load_state_dict(load_file(cfg["start"]))
        self.averaged = {k: v.clone() for k, v in self.net.state_dict().items()}
        self.loaded = {}

    def graph(self, name):
        if name not in self.loaded:
            self.loaded[name] = Loaded(self.prepared[name, bool(self.cfg["names"])], self.device)
        return self.loaded[name]

    def stage(self, number, cfg, seconds, save):
        """Train for `seconds` or cfg['steps']; returns facts."""
        names, shares = mixture(cfg)
        keep = [i for i, n in enumerate(names) if self.prepared[n, bool(cfg["names"])]["pairs"]]
        names, shares = [names[i] for i in keep], [shares[i] for i in keep]
        episodes = Episodes([self.prepared[n, bool(cfg["names"])] for n in names], shares, cfg, f"{cfg['seed']}/{number}")
        self.rate = torch.tensor(cfg["lr"], device=self.device)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=self.rate if self.on_gpu else cfg["lr"], weight_decay=cfg["decay"], fused=self.on_gpu, capturable=self.on_gpu)
        if self.on_gpu:
            self.rate.fill_(0)
            for p in self.net.parameters(): p.grad = torch.zeros_like(p)
            self.opt.step()  # makes the moments before anything is recorded
        self.recorded, seen = {}, {}
        self.pool = torch.cuda.graph_pool_handle() if self.on_gpu else None
        if self.on_gpu and cfg["workers"]:
            stream = iter(torch.utils.data.DataLoader(Packed(episodes), sampler=range(0, min(cfg["steps"], 10 ** 7)), batch_size=None, num_workers=cfg["workers"],
                                                      prefetch_factor=8, pin_memory=True, multiprocessing_context="fork"))
        else:
            stream = (packed(episodes[s]) for s in range(cfg["steps"]))
        began = last = time.time()
        step, waited, losses, told, saved, ema_loss = 0, 0., [], 0, began, None
        counts, recording, ahead = {}, 0., []
        average, current = list(self.averaged.values()), list(self.net.state_dict().values())
        while step < cfg["steps"]:
            now = time.time()
            if now - began >= seconds: break
            progress = max(step / cfg["steps"], (now - began) / seconds)
            rate = cfg["lr"] * min(1, progress / .03 + .02) * (.5 + .5 * math.cos(math.pi * progress))
            graph, band, meta, buffer = next(stream)
            waited += time.time() - now
            key = graph, band
            counts[band] = counts.get(band, 0) + 1
            g = self.graph(names[graph])
            if self.on_gpu:
                self.rate.fill_(rate)
                if key in self.recorded:
                    loss = self.recorded[key](buffer)
                elif key in seen and cfg.get("record", True):
                    t0 = time.time()
                    try:
                        self.recorded[key] = Recorded(self, g, graph, band, meta, buffer)
                        loss = self.recorded[key](buffer)
                    except Exception as error:  # go on without recording
                        self.say(dict(kind="record failed", error=repr(error)[:400]))
                        cfg = {**cfg, "record": False}
                        torch.cuda.synchronize()
                        loss = self.eager(g, unpacked(graph, band, meta, buffer.to(self.device)))
                    recording += time.time() - t0
                else:
                    seen[key] = True
                    loss = self.eager(g, unpacked(graph, band, meta, buffer.to(self.device, non_blocking=True)))
            else:
                for group in self.opt.param_groups: group["lr"] = rate
                loss = self.move(g, unpacked(graph, band, meta, buffer))
            keepw = min(cfg["average"], (step + 1) / (step + 10)) if number == 0 and not cfg["start"] else cfg["average"]
            with torch.no_grad():
                torch._foreach_lerp_(average, current, 1 - keepw)
            losses.append(loss)
            step += 1
            if self.on_gpu:  # the host stays at most a few steps ahead
                event = torch.cuda.Event(); event.record(); ahead.append(event)
                if len(ahead) > 6: ahead.pop(0).synchronize()
            if step % 50 == 0 or not self.on_gpu:
                now = time.time()
                if now - last > 8:
                    mean = float(torch.stack(losses).float().mean()); losses = []
                    self.say(dict(kind="train", stage=number, step=step, seconds=round(now - began, 1), loss=round(mean, 4), per_s=round((step - told) / (now - last), 1),
                                  waited=round(waited, 1), recorded=len(self.recorded), recording=round(recording, 1), gb=round(torch.cuda.max_memory_allocated() / 2 ** 30, 1) if self.on_gpu else 0))
                    last, told = now, step
                    if math.isnan(mean): raise RuntimeError("loss is NaN")
                    if now - saved > 25:
                        save(); saved = now
        if self.on_gpu: torch.cuda.synchronize()
        del stream
        took = time.time() - began
        mean = float(torch.stack(losses).float().mean()) if losses else None
        facts = dict(stage=number, steps=step, seconds=round(took, 1), per_s=round(step / max(took, 1e-6), 2), waited=round(waited, 1), recorded=len(self.recorded), recording=round(recording, 1), loss=mean, bands=counts, graphs=len(names))
        self.recorded, self.pool = {}, None
        save()
        return facts

    def move(self, g, batch):
        self.opt.zero_grad(set_to_none=True)
        scores = self.net(g, batch.tasks, self.dtype).masked_fill(batch.excluded, -torch.inf)
        loss = cross_entropy(scores.flatten(0, 1), batch.answers.flatten())
        loss.backward()
        value = loss.detach().clone()
        nn.utils.clip_grad_norm_(self.net.parameters(), self.cfg["clip"])
        self.opt.step()
        return value

    def eager(self, g, batch):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            value = self.move(g, batch)
        torch.cuda.current_stream().wait_stream(side)
        return value

    def answering(self):
        net = net_of(self.cfg).to(self.device)
        net.load_state_dict(self.averaged)
        return net.eval()


class Recorded:
    def __init__(self, learner, g, graph, band, meta, buffer):
        self.buffer = buffer.to(learner.device)
        batch = unpacked(graph, band, meta, self.buffer)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=learner.pool, capture_error_mode="thread_local"):
            self.loss = learner.move(g, batch)

    def __call__(self, buffer):
        self.buffer.copy_(buffer, non_blocking=True)
        self.graph.replay()
        return self.loss.clone()


def net_of(cfg):
    return Trail3(**{k: cfg[k] for k in ("width", "layers", "relation_layers", "streams", "node", "names", "cosines")})
