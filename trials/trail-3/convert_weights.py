import sys,json
from pathlib import Path
from safetensors import safe_open
from fewlink.models.trail.network import Shape
from fewlink.models.trail import shipped
src=Path(sys.argv[1])
with safe_open(src,'pt') as f:
    w={k:f.get_tensor(k) for k in f.keys()}; c=json.loads(f.metadata()['config'])
assert c['streams']==2 and c['node']
shape=Shape(c['width'],c['layers'],c['relation_layers'])
shipped.write_weights(Path(sys.argv[2]),w,shape,trial=src.name)
import hashlib; print(hashlib.sha256(Path(sys.argv[2]).read_bytes()).hexdigest(), Path(sys.argv[2]).stat().st_size)
