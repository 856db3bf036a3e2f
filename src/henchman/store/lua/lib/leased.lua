-- A process that is buried, or whose lease is gone, gets nothing: its call ends here. KEYS[2] and KEYS[3] are its lease and
-- its tomb, ARGV begins with lease_ms. The renewal comes before all writes: a full server accepts those that follow.
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 'LOST'
end
if redis.call('PEXPIRE', KEYS[2], ARGV[1]) == 0 then
  return 'LAPSED'
end
