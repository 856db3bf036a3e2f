-- end_lost: end a run of a process that is gone: out of its in-flight list, then where its job goes next, then its effects
-- KEYS queues flight
-- ARGV payload ending stored delay batch effects day dead_max dead_timeout
-- returns 1 done; 0 it is not there any more, nothing was changed; a text: the server refused, it is in flight as before.
--   ending: retry (stored, due delay seconds from the server's now), dead (stored in the dead set, or with the dead of the
--   batch while it stands), anything else leaves no trace. LREM is the fence, as in settle.lua. Effects are a JSON list,
--   see lib/effects.lua.
-- include base
-- include keys
-- include to_dead
-- include effects
-- include stats
local payload, ending, stored = ARGV[1], ARGV[2], ARGV[3]
if redis.call('LREM', KEYS[2], -1, payload) == 0 then
  return 0
end
local now = server_now()
local fine, problem = true, nil
if ending == 'retry' then
  fine, problem = pcall(redis.call, 'ZADD', key('retry'), as_text(now + tonumber(ARGV[4])), stored)
elseif ending == 'dead' then
  fine, problem = pcall(to_dead, stored, now, ARGV[5], tonumber(ARGV[8]), tonumber(ARGV[9]))
end
if not fine then
  redis.call('RPUSH', KEYS[2], payload)
  return in_words(problem)
end
carry_out(payload, ending, ARGV[6])
finish_effects()
add_to_stat(key('stat_processed'), ARGV[7], 1)
add_to_stat(key('stat_failed'), ARGV[7], 1)
return 1
