"""MSTopK and HiTopKComm (Shi et al. 2021): sparse communication by elements."""
