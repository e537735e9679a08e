"""Does it fit, surely?"""
