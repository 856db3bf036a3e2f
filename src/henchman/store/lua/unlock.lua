-- unlock: take a business key from a job by hand, and give it to the next in line
-- KEYS queues
-- ARGV phase scope name jid
-- returns 1, or 0 when that job does not hold it. jid: "" when nobody holds it: who waits for it gets it.
-- include base
-- include keys
-- include effects
redis.call('ZREM', key('cancelled'), '')  -- no-op write: after a removal a full server accepts the writes that follow
local made = prepare_effects()
if (made.lock_holder(ARGV[1], ARGV[2], ARGV[3]) or '') ~= ARGV[4] then
  return 0
end
made.hand_on(ARGV[1], ARGV[2], ARGV[3], '')
finish_effects()
return 1
