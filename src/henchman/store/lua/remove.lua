-- remove: take one payload out of a queue, for good
-- KEYS queue cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped (own)*
-- ARGV payload effects
-- returns 1 it is out, 0 it was not there: then it has no effects either, see lib/effects.lua
-- include now
-- include words
-- include batch
-- include effects
local removed = redis.call('LREM', KEYS[1], 1, ARGV[1])
if removed == 1 and ARGV[2] ~= '' then
  carrying_out(2, 11)(ARGV[1], 'deleted', ARGV[2])
end
return removed
