-- history_lead: be the process that records, where nobody else is; and say that history is kept
-- KEYS recorder history_on
-- ARGV identity lease_ms kept
-- returns 1 it leads now, 0 another does. kept: policy and bytes of a history that is not known to be on; else empty.
--   Removals and expiries come first: a full server accepts them, and what follows; only who records makes room.
-- include lead
if ARGV[3] ~= '' then
  redis.call('DEL', KEYS[2])
  redis.call('SET', KEYS[2], ARGV[3])
end
return lead(KEYS[1], ARGV[1], ARGV[2]) and 1 or 0
