-- limit_hand: let those go who wait for a place of a limit, as far as there are some
-- KEYS queues
-- ARGV name by
-- returns how many went
-- include base
-- include keys
-- include effects
redis.call('ZREM', key('cancelled'), '')  -- no-op write: after a removal a full server accepts the writes that follow
local handed = prepare_effects().hand_slots(ARGV[1], ARGV[2])
finish_effects()
return handed
