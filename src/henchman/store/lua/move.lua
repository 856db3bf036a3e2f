-- move: take entries out of a sorted set and put each where it goes next: into its queue, into the dead set, nowhere
-- KEYS queues source
-- ARGV dead_max dead_timeout (where name old new effects)*
-- returns one status an entry: 1 moved, 0 it was not there any more, a text: the server refused, it is where it was;
--   "HELD <jid>": it was dead, and another job has its key by now.
--   where: queue (called name), waits (for it, once more: the last effect is "await", see work/waits.py), dead (with the
--   dead of the batch called name, while it stands), later (old stays, due name seconds from the server's now), at (new in
--   its place, due at the Unix time name), nowhere. ZREM is the fence: of two that move the same entry, one succeeds.
--   Effects are those of a job that ends here or is enqueued, see lib/effects.lua.
-- include base
-- include keys
-- include to_dead
-- include effects
-- include kept_out
local SOURCE = KEYS[2]
local now = server_now()
local status, waiting = {}, nil
for at = 3, #ARGV, 5 do
  if ARGV[at] == 'waits' then
    waiting = prepare_effects()  -- before the first effect is carried out
    break
  end
end

-- A job comes back, and waits for what is missing still. Its other effects, as they are then.
local function come_back(queue, payload, text)
  local effects, tracked = cjson.decode(text), nil
  local await = table.remove(effects)
  for _, effect in ipairs(effects) do
    tracked = effect[1] == 'track' and effect or tracked
  end
  local needs = waiting.needing()
  local missing = needs.missing(await[2])
  if #missing == 0 then
    waiting.let_go('n', queue, '', payload, '')
  else
    local later = tracked and cjson.encode({tracked}) or ''
    local job = {jid = await[4], queue = queue, due = '', payload = payload, tracked = later}
    needs.park(job, missing, await[3], await[5] > 0 and await[5])
    if tracked then
      tracked[4] = 'blocked'
    end
  end
  return cjson.encode(effects)
end

local function place(where, name, old, payload, effects)
  if where == 'queue' then
    redis.call('SADD', KEYS[1], name)
    redis.call('LPUSH', key('queue_prefix') .. name, payload)
  elseif where == 'later' then
    redis.call('ZADD', SOURCE, as_text(now + tonumber(name)), old)
  elseif where == 'at' then
    redis.call('ZADD', SOURCE, name, payload)
  elseif where == 'dead' then
    to_dead(payload, now, name, tonumber(ARGV[1]), tonumber(ARGV[2]))
  elseif where == 'waits' then
    return come_back(name, payload, effects)
  end
  return effects
end

for entry = 1, (#ARGV - 2) / 5 do
  local at = 5 * entry - 2
  local where, name, old, new, effects = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local score = redis.call('ZSCORE', SOURCE, old)
  local keeps_out = score and (where == 'queue' or where == 'waits') and kept_out_by(effects)
  status[entry] = keeps_out and 'HELD ' .. keeps_out or redis.call('ZREM', SOURCE, old)
  if status[entry] == 1 then
    local fine, told = pcall(place, where, name, old, new, effects)
    if fine then
      carry_out(old, where == 'dead' and name == '' and 'dead' or 'deleted', told)
    else
      redis.call('ZADD', SOURCE, score, old)
      status[entry] = in_words(told)
    end
  end
end
finish_effects()
return status
