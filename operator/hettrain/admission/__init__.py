"""The admission webhook: what the CRD's own rules cannot say of a job, said before it is stored."""
