"""Workers whose steps are functions: custom workers, pipelines and refined plans."""
