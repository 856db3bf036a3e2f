-- move: take entries out of a sorted set and put each where it goes next: into its queue, into the dead set, nowhere
-- KEYS queues source
-- ARGV dead_max dead_timeout (where name old new effects)*
-- returns one status an entry: 1 moved, 0 it was not there any more, a text: the server refused, it is where it was;
--   "HELD <jid>": it was dead, and another job has its key by now.
--   where: queue (called name), dead (with the dead of the batch called name, while it stands), later (old stays, due name
--   seconds from the server's now), at (new in its place, due at the Unix time name), nowhere. ZREM is the fence: of two
--   that move the same entry, one succeeds. Effects are those of a job that ends here, see lib/effects.lua.
-- include base
-- include keys
-- include to_dead
-- include effects
-- include kept_out
local SOURCE = KEYS[2]
local now = server_now()
local status = {}

local function place(where, name, old, payload)
  if where == 'queue' then
    redis.call('SADD', KEYS[1], name)
    redis.call('LPUSH', key('queue_prefix') .. name, payload)
  elseif where == 'later' then
    redis.call('ZADD', SOURCE, as_text(now + tonumber(name)), old)
  elseif where == 'at' then
    redis.call('ZADD', SOURCE, name, payload)
  elseif where == 'dead' then
    to_dead(payload, now, name, tonumber(ARGV[1]), tonumber(ARGV[2]))
  end
end

for entry = 1, (#ARGV - 2) / 5 do
  local at = 5 * entry - 2
  local where, name, old, new, effects = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local score = redis.call('ZSCORE', SOURCE, old)
  local keeps_out = score and where == 'queue' and kept_out_by(effects)
  status[entry] = keeps_out and 'HELD ' .. keeps_out or redis.call('ZREM', SOURCE, old)
  if status[entry] == 1 then
    local fine, problem = pcall(place, where, name, old, new)
    if fine then
      carry_out(old, where == 'dead' and name == '' and 'dead' or 'deleted', effects)
    else
      redis.call('ZADD', SOURCE, score, old)
      status[entry] = in_words(problem)
    end
  end
end
finish_effects()
return status
