"""What a run leaves behind: its folder, run.csv, status.json and where it comes from. No torch.

May import: base, runs/options.
"""
