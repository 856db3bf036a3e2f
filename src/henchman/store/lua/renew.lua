-- renew: prolong the lease of an identity; take it again when it had lapsed and nobody has buried the identity
-- KEYS lease tomb flights tombs
-- ARGV lease_ms identity
-- returns {1 renewed, or 2 it had lapsed and was taken again; 1 if its in-flight lists are known, else 0}, or "LOST" when
--   the identity was buried: as long as its lists are swept, though its tomb may have run out (the server's clock went
--   forward, or nobody lived to sweep). PEXPIRE comes first: a full server accepts it.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 'LOST'
end
local known = redis.call('EXISTS', KEYS[3])
if redis.call('PEXPIRE', KEYS[1], ARGV[1]) == 1 then
  return {1, known}
end
if redis.call('ZSCORE', KEYS[4], ARGV[2]) then
  return 'LOST'
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[1])
return {2, known}
