-- settle_oldest: end the oldest units of an in-flight list, all of them done and without effects, by cutting them off
-- KEYS queues lease tomb flight
-- ARGV lease_ms day count oldest newest
-- returns "LOST" when the identity was buried, else one status for all: 1 settled; 0 nothing was changed: oldest, the
--   payload that lies there longest, does not stand at the right end, or newest, the last of the count, not at its place.
--   The caller knows exactly count units from the one to the other (work/unit.py: FetchOrder), so both ends are the
--   fence, as LREM is in settle: a late word finds another payload at the end. What did not fit is settled one by one.
--   PEXPIRE comes first: a full server accepts it, and what follows it. day is that of the statistics.
-- include keys
-- include stats
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 'LOST'
end
redis.call('PEXPIRE', KEYS[2], ARGV[1])
local flight, count = KEYS[4], tonumber(ARGV[3])
if redis.pcall('LINDEX', flight, -1) ~= ARGV[4] or redis.pcall('LINDEX', flight, -count) ~= ARGV[5] then
  return {0}
end
redis.call('LTRIM', flight, 0, -(count + 1))
add_to_stat(key('stat_processed'), ARGV[2], count)
return {1}
