"""What every process of the suite shares: flags, log lines, version, repeated work, the second port."""
