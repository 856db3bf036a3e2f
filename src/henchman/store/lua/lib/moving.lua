-- Take one entry out of a sorted set and put it where it goes next, with its effects: see move.lua.
-- include base
-- include keys
-- include to_dead
-- include effects
-- include kept_out
-- include came_back

-- move(where, name, old, new, effects) gives the status of the entry `old` of the set `source`, and the score it had. The
-- entries stand in ARGV, five texts each, from `first` on.
local function moving(source, dead_max, dead_timeout, first)
  local now, waiting = server_now(), nil
  for at = first, #ARGV, 5 do
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
    elseif where == 'next' then
      redis.call('SADD', KEYS[1], name)
      redis.call('RPUSH', key('queue_prefix') .. name, payload)
      came_back(name, 1)
    elseif where == 'later' then
      redis.call('ZADD', source, as_text(now + tonumber(name)), old)
    elseif where == 'at' then
      redis.call('ZADD', source, name, payload)
    elseif where == 'dead' then
      to_dead(payload, now, name, dead_max, dead_timeout)
    elseif where == 'waits' then
      return come_back(name, payload, effects)
    end
    return effects
  end

  return function(where, name, old, new, effects)
    local score = redis.call('ZSCORE', source, old)
    local keeps_out = score and (where == 'queue' or where == 'waits') and kept_out_by(effects)
    local status = keeps_out and 'HELD ' .. keeps_out or redis.call('ZREM', source, old)
    if status == 1 then
      local fine, told = pcall(place, where, name, old, new, effects)
      if not fine then
        redis.call('ZADD', source, score, old)
        return in_words(told), score
      end
      carry_out(old, where == 'dead' and name == '' and 'dead' or 'deleted', told)
    end
    return status, score
  end
end
