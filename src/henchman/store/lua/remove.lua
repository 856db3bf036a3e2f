-- remove: take one payload out of a queue, or of those that the dead set had no room for, for good
-- KEYS queues source
-- ARGV payload effects
-- returns 1 it is out, 0 it was not there: then it has no effects either, see lib/effects.lua
-- include base
-- include keys
-- include effects
-- include left_line
local removed = redis.call('LREM', KEYS[2], 1, ARGV[1])
if removed == 1 then
  left_line(string.sub(KEYS[2], #key('queue_prefix') + 1), 1)
  carry_out(ARGV[1], 'deleted', ARGV[2])
  finish_effects()
end
return removed
