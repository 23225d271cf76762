"""What a card computes at best, for the model FLOPs utilisation (MFU). Imports no torch.

Dense products, never the doubled figures with sparsity; products of fp16 and bf16 with sums in fp32, as PyTorch
computes them. The figures are those that NVIDIA's data sheets and whitepapers name; each was found alike in two
places at least. A card of which that is not so is not in the list: its MFU stays empty.

- V100 and T4, which have neither TF32 nor bf16: throughput.py of Lightning (lightning/fabric/utilities) and
  speed_monitor.py of Composer (composer/callbacks), each with the data sheet's address
- A100, H100 PCIe: the same two; their TF32: Composer, and a reseller's copy of the data sheet (hpctech.co.jp) or
  specs.md of winston-zhang-orz/gpu-specs
- A10: speed_monitor.py; specs.md
- A40: data sheet as copied by resellers (ecer.com); the description of Huawei's G7 servers; README.md of
  astroC86/gpu-datasheet (fp16)
- H100 SXM: H100 architecture whitepaper as quoted by glennklockwood.com/garden; hmc-tech.com; rounded to 989 in
  the data sheet, speed_monitor.py and throughput.py. H200, the same chip: speed_monitor.py; hmc-tech.com
- H100 NVL: its data sheet as quoted in several courses (60, 835 and 1,671 with sparsity); tools/utils.py of
  torchtitan (835 in bf16)
- GH200: gh200_specs.md of atineoSE/coding-model-seeks-gpu, from the data sheet (67, 494, 990); the same chip with
  132 SMs at 1,980 MHz, as OpenCL-Benchmark reads it in mredenti/PowerCapping (66.9 in fp32)
- L4: specs.md; a dealer's copy of the data sheet (store.sourcecode.com; 120 in TF32 with sparsity)
- L40S: specs.md; a dealer's copy of the data sheet (mullet.se)
- RTX 4090: Ada architecture whitepaper, appendix A, as quoted by many (165.2, 82.6); waredb.com
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """TFLOP/s of one card; None where it has no such units."""

    half: float  # of products of fp16, and of bf16 where the card has it
    tf32: float | None
    fp32: float
    has_bf16: bool = True


A100, H100 = Peak(312, 156, 19.5), Peak(989.4, 494.7, 66.9)

# By the whole name that PyTorch reads from the driver. A part of one of these would also name other products: a
# slice of a card (MIG), or one made for a single customer, with other numbers of units.
PEAKS = {
    "Tesla V100-SXM2-16GB": Peak(125, None, 15.7, has_bf16=False),
    "Tesla V100-SXM2-32GB": Peak(125, None, 15.7, has_bf16=False),
    "Tesla V100-PCIE-16GB": Peak(112, None, 14, has_bf16=False),
    "Tesla V100-PCIE-32GB": Peak(112, None, 14, has_bf16=False),
    "Tesla T4": Peak(65, None, 8.1, has_bf16=False),
    "NVIDIA A100-SXM4-40GB": A100,
    "NVIDIA A100-SXM4-80GB": A100,
    "NVIDIA A100-PCIE-40GB": A100,
    "NVIDIA A100 80GB PCIe": A100,
    "NVIDIA A10": Peak(125, 62.5, 31.2),
    "NVIDIA A40": Peak(149.7, 74.8, 37.4),
    "NVIDIA H100 80GB HBM3": H100,
    "NVIDIA H100 PCIe": Peak(756, 378, 51),
    "NVIDIA H100 NVL": Peak(835, 417.5, 60),
    "NVIDIA H200": H100,  # the same chip with other memory
    "NVIDIA GH200 120GB": H100,
    "NVIDIA GH200 480GB": H100,
    "NVIDIA L4": Peak(121, 60, 30.3),
    "NVIDIA L40S": Peak(362, 183, 91.6),
    "NVIDIA GeForce RTX 4090": Peak(165.2, 82.6, 82.6),
}


def peak_flops(card: str, precision: str, *, tf32: bool = False) -> float | None:
    """FLOP/s of a card at best; None where nobody knows: a card that is not in the list, the CPU.

    Args:
        card: its whole name.
        precision: fp32, bf16 or fp16.
        tf32: whether products of fp32 are computed in TF32.
    """
    known = PEAKS.get(card)
    if known is None or (precision == "bf16" and not known.has_bf16):
        return None
    if precision != "fp32":
        return known.half * 1e12
    return (known.tf32 if tf32 and known.tf32 is not None else known.fp32) * 1e12
