-- history_lead: be the process that records, where nobody else is; and say that history is kept
-- KEYS recorder history_on
-- ARGV identity lease_ms kept
-- returns 1 it leads now, 0 another does. kept: policy and bytes of a history that is not known to be on; else empty.
--   Removals and expiries come first: a full server accepts them, and what follows; only who records makes room.
if ARGV[3] ~= '' then
  redis.call('DEL', KEYS[2])
  redis.call('SET', KEYS[2], ARGV[3])
end
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
