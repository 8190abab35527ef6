"""Child processes: started, forked, watched over, ended, with the folders they work in."""
