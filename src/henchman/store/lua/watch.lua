-- watch: look at the lease of every process, if it is this one's turn to look after the dead
-- KEYS lifeline identities rescues leases tombs programs
-- ARGV identity turn_ms first most
-- returns {0, left_ms} when it is another process's turn, for so long at least; else {1, rescues, tombs, held,
--   (name expires_ms)*}: 1 or 0, whether identities are buried and whether programs hold places; the names from the first
--   on, in the order of joining, and the server's time at which the lease of each runs out (0: there is none). A removal
--   or an expiry comes first: a full server accepts it. A lease that would last longer than it was given for is from
--   before the server's clock went back: it ends in time all the same. A living process has renewed its lease since, or
--   is about to.
-- include base
-- include lead
local LONG = 60000  -- ms; what would last no longer than this is left alone
if not lead(KEYS[1], ARGV[1], ARGV[2], 10 * LONG) then
  return {0, redis.call('PTTL', KEYS[1])}
end
local now = math.floor(server_now() * 1000)
local seen = {1, redis.call('SMEMBERS', KEYS[3]), redis.call('EXISTS', KEYS[5]), redis.call('EXISTS', KEYS[6])}
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], ARGV[3], ARGV[3] + ARGV[4] - 1)) do
  local left = redis.call('PTTL', KEYS[4] .. name)
  local given = left > LONG and tonumber(redis.call('GET', KEYS[4] .. name))
  if given and given > 0 and given < left and given == math.floor(given) then
    redis.call('PEXPIRE', KEYS[4] .. name, given)
    left = given
  end
  seen[#seen + 1] = name
  seen[#seen + 1] = left > 0 and now + left or (left == -1 and -1 or 0)
end
return seen
