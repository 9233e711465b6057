"""Any family of diffusers' modular pipelines, by declaration: stages, parameters, programs."""
