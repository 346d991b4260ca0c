"""What runs on a platform. A build copies these modules next to the oracle's marking code.

submission.py   the file of a submission and its marks; hidden cases stay hidden. PrairieLearn's
                tests ask it for each part's sentence
gradescope.py   results.json            otter.py   sentences for tests in OK format
classroom50.py  result.json             plain.py   a folder of submissions -> a CSV
"""
