"""python .trials/trail3/run.py --plan FILE.json --seconds N --out DIR: all variants of a plan, side by side on one GPU."""
import argparse, json, multiprocessing as mp, os, sys, time, traceback
START = time.time()
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
PREPARED = {}


def say(text):
    print(f"[{time.time() - START:6.1f}] {text}", flush=True)


def prepare_one(key):
    import data
    t = time.time()
    p = data.prepare(*key)
    if key[2] if len(key) > 2 else False: p["pairs"] = []
    return key, p, time.time() - t


def child(cfg, out, slot, device):
    import torch
    from safetensors.torch import save_file
    from data import Loaded, index
    import evaluate, train
    torch.set_num_threads(2 if device == "cuda" else 1)
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
    began, path = time.time(), os.path.join(out, cfg["name"])
    log = open(path + ".jsonl", "a", buffering=1)

    def tell(row):
        row = dict(variant=cfg["name"], t=round(time.time() - began, 1), **row)
        log.write(json.dumps(row) + "\n"); log.flush()
        short = {k: v for k, v in row.items() if k not in ("curve", "skew", "config")}
        say(json.dumps(short)[:420])

    try:
        tell(dict(kind="config", config={k: v for k, v in cfg.items()}))
        learner = train.Learner(cfg, PREPARED, device, tell)
        tell(dict(kind="network", parameters=sum(p.numel() for p in learner.net.parameters()), setup=round(time.time() - began, 1)))
        save = lambda: save_file({k: v.contiguous().cpu() for k, v in learner.averaged.items()}, path + ".safetensors", {"config": json.dumps(cfg)})
        deadline = began + slot
        stages = cfg["stages"] or [{}]
        left = cfg["train_seconds"] or slot - cfg["eval_seconds"] - (time.time() - began)
        total, facts = sum(s.get("share", 1) for s in stages), []
        for i, stage in enumerate(stages):
            own = {**cfg, **{k: v for k, v in stage.items() if k not in ("share", "eval_after")}}
            f = learner.stage(i, own, max(1, left * stage.get("share", 1) / total), save)
            facts.append(f); tell(dict(kind="stage", **f))
            if stage.get("eval_after"):
                save_file({k: v.contiguous().cpu() for k, v in learner.averaged.items()}, f"{path}.stage{i}.safetensors", {"config": json.dumps(cfg)})
                tell(dict(kind="stage_summary", stage=i, **evaluate.evaluate(learner.answering(), learner.graph, {**cfg, "eval": stage["eval_after"]}, index(), tell, deadline)))
        learner.loaded = {}
        if device == "cuda": torch.cuda.empty_cache()
        net, cache = learner.answering(), {}

        def load(name):
            if name not in cache:
                cache.clear()
                cache[name] = Loaded(PREPARED[name, bool(cfg["names"])], device)
            return cache[name]

        summary = evaluate.evaluate(net, load, cfg, index(), tell, deadline)
        gb = round(torch.cuda.max_memory_allocated() / 2 ** 30, 1) if device == "cuda" else 0
        tell(dict(kind="summary", steps=sum(f["steps"] for f in facts), per_s=facts[-1]["per_s"], gb=gb, seconds=round(time.time() - began, 1), **summary))
    except Exception as error:
        tell(dict(kind="crash", error=repr(error)[:500], trace=traceback.format_exc()[-3000:]))
        say(traceback.format_exc()[-3000:])
        os._exit(1)
    os._exit(0)


def table(out, names):
    lines = []
    for n in names:
        rows = []
        try: rows = [json.loads(l) for l in open(os.path.join(out, n + ".jsonl"))]
        except Exception: pass
        done = [r for r in rows if r["kind"] == "summary"]
        if not done:
            last = rows[-1] if rows else {}
            lines.append(f"{n:<26} no summary; last: {json.dumps(last)[:160]}"); continue
        r = done[-1]
        for mode in ("on", "off"):
            if mode not in r: continue
            s = r[mode]
            f = lambda x: "  – " if x is None else f"{x:.3f}"
            c = s.get("suite", {})
            k = s.get("skew", {})
            lines.append(f"{n:<26} {mode:<3} {r['steps']:>6} {r['per_s']:>6} {f(s.get('codex'))} {f(s.get('fold0'))} {f(s.get('fold1'))} | " +
                         " ".join(f(c.get(x)) for x in ("1", "3", "10", "30", "100", "all")) + " | " + " ".join(f(s.get("unseen", {}).get(x)) for x in ("3", "all")) + " | " +
                         " ".join(f"{x}:{v[0]:.2f}>{v[1]:.2f}" for x, v in k.items()) + f" | eval {r.get('eval_seconds')}s {r['gb']}GB" +
                         "".join(f" {a}={b}" for a, b in s.items() if "test" in a or a == "fb"))
    print("variant                    names steps  per_s  codex fold0 fold1 | suite K=1 3 10 30 100 all | unseen tails 3 all | hits skew")
    print("\n".join(lines), flush=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--plan", required=True); a.add_argument("--seconds", type=float, required=True); a.add_argument("--out", required=True)
    a.add_argument("--device", default=None); a.add_argument("--only", default="")
    args = a.parse_args()
    os.makedirs(args.out, exist_ok=True)
    import torch
    import evaluate, train
    from data import index
    plan = json.load(open(args.plan))
    variants = [{**train.DEFAULTS, **plan.get("common", {}), **v} for v in plan["variants"]]
    for v in variants: v["eval"] = {**train.DEFAULTS["eval"], **plan.get("common", {}).get("eval", {}), **next(x for x in plan["variants"] if x["name"] == v["name"]).get("eval", {})}
    if args.only: variants = [v for v in variants if v["name"] in args.only.split(",")]
    import subprocess
    device = args.device or ("cuda" if os.path.exists("/dev/nvidia0") or subprocess.run(["sh", "-c", "nvidia-smi -L"], capture_output=True).returncode == 0 else "cpu")
    say(f"device {device}, torch {torch.__version__}, cores {os.cpu_count()}, variants {[v['name'] for v in variants]}")
    if plan.get("check", False):
        code = subprocess.run([sys.executable, os.path.join(HERE, "check.py")], timeout=150).returncode
        say(f"check.py: {'right' if code == 0 else 'WRONG ' + str(code)}")
    rows, keys = index(), []
    for v in variants:
        for s in v["stages"] or [{}]: keys += [(n, bool(v["names"])) for n in train.mixture({**v, **s})[0]]
        for e in [v["eval"], *(s["eval_after"] for s in v["stages"] or [] if s.get("eval_after"))]:
            keys += [(n, bool(v["names"])) for n in evaluate.needed({"eval": e}, rows)]
    keys = sorted(set(keys), key=lambda k: -os.path.getsize(os.path.join(HERE, "..", "data", k[0] + ".xz")))
    cores = min(len(keys), plan.get("prepare", max(1, (os.cpu_count() or 2) - 1)))
    t = time.time()
    ctx = mp.get_context("fork")
    with ctx.Pool(cores) as pool:
        for key, p, took in pool.imap_unordered(prepare_one, keys):
            PREPARED[key] = p
    say(f"prepared {len(keys)} graphs, {sum(p['edges'] for p in PREPARED.values()) / 1e6:.1f}M edges, {sum(len(p['pairs']) for p in PREPARED.values())} relations to learn from, in {time.time() - t:.1f} s")
    jobs = plan.get("jobs", 3)
    waves = -(-len(variants) // jobs)
    end = START + args.seconds - plan.get("margin", 6)
    slot = plan.get("slot") or (end - time.time()) / waves
    say(f"{jobs} side by side, {waves} waves, {slot:.0f} s each")
    waiting, running = list(variants), []
    import gc; gc.collect(); gc.freeze()
    while waiting or running:
        while waiting and len(running) < jobs and time.time() < end - 5:
            cfg = waiting.pop(0)
            p = ctx.Process(target=child, args=(cfg, args.out, min(slot, end - time.time()), device))
            p.start(); running.append((p, cfg, time.time()))
        now = time.time()
        for item in list(running):
            p, cfg, began = item
            if not p.is_alive():
                running.remove(item)
                if p.exitcode: say(f"{cfg['name']} ended with {p.exitcode}")
            elif now > end or now - began > slot + 8:
                say(f"{cfg['name']} is stopped at its limit"); stop(p.pid); running.remove(item)
        if now > end and not running: break
        time.sleep(.2)
    table(args.out, [v["name"] for v in variants])
    say("done")
    os._exit(0)


def stop(pid):
    """Ends a variant and the processes that draw its episodes."""
    import signal
    kids = []
    try: kids = open(f"/proc/{pid}/task/{pid}/children").read().split()
    except OSError: pass
    for x in [pid, *map(int, kids)]:
        try: os.kill(x, signal.SIGKILL)
        except OSError: pass


if __name__ == "__main__":
    main()
