"""Two stories about doing something to the world once: `jobs.py`. jobctl run --app once.jobs"""
