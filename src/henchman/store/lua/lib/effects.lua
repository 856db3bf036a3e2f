-- What happens in the same breath as a job's end, or as another change of it. `carry_out(payload, ending, text)` takes a
-- JSON list of effects, each [kind, …], or the end of a run that went well, '+' (lib/batch.lua), '*' (lib/key_ends.lua) or
-- '~' (lib/place_ends.lua) and what is known of it, or nothing; after the last one comes `finish_effects()`. Kinds are a closed list and idempotent
-- (work/effects.py). One that fails goes to the broken list with its job, and stops no other.
local ends_of_keys, ends_of_places, batches, kinds, hand_on_places  -- made with the first that needs them: most jobs have none

local function note_broken(payload, ending, text, problem)
  local broken = key('broken')
  redis.pcall('LPUSH', broken,
    cjson.encode({unit = payload, ending = ending, effects = text, error = in_words(problem)}))
  redis.pcall('LTRIM', broken, 0, 999)
end

local carry_out
local function prepare_effects()
  -- include batch
  -- include limit_ends
  hand_places, hand_on_places = hand_slots, hand_slots
  function carry_tracked(payload, tracked)
    carry_out(payload, 'let go', tracked)
  end
  batches = batching()
  kinds = {track = batches.track, said = batches.said, step_result = batches.step_result}
  function kinds.uncancel(effect)
    redis.call('ZREM', key('cancelled'), effect[2])
  end
  function kinds.cron_done(effect)  -- [cron_done, cron, jid, ending]
    local running = key('cron_running')
    local mark = redis.call('HGET', running, effect[2])
    if mark and string.match(mark, '^%S+ (.*)$') == effect[3] then  -- else the mark is another job's
      redis.call('HDEL', running, effect[2])
    end
    local past = key('cron_past') .. effect[2]
    for place, text in ipairs(redis.call('LRANGE', past, 0, 49)) do
      local run, jid = string.match(text, '^(%S+ %S+ (%S+))')
      if jid == effect[3] and effect[4] then  -- not from a worker of an earlier version
        redis.call('LSET', past, place - 1, run .. ' ' .. effect[4] .. ' ' .. as_text(server_now()))
        break
      end
    end
  end
  function kinds.uniterate(effect)
    redis.call('UNLINK', own_key(effect[2]))
  end
  function kinds.unlock(effect)  -- [unlock, phase, scope, key, jid, s, f or x to remember or "", once_for]
    local phase, scope, name, jid = effect[2], effect[3], effect[4], effect[5]
    if lock_holder(phase, scope, name) ~= jid then
      return
    end
    if effect[6] ~= '' then
      once_remember(scope, name, effect[7], effect[6], jid)
    end
    hand_on(phase, scope, name, effect[6])
  end
  function kinds.follow(effect)  -- [follow, phase, scope, key, jid]: it is dead
    if lock_dies(effect[2], effect[3], effect[4], effect[5]) then
      needing().unmet(effect[3], effect[4], 'dead')
    end
  end
  function kinds.step(effect)  -- [step, batch, step, s, f, x, d or ""]
    needing().step(effect[2], effect[3], effect[4])
  end
  function kinds.unrun(effect)  -- [unrun, scope, key, jid]
    lock_free('r', effect[2], effect[3], effect[4])
  end
  function kinds.unslot(effect)  -- [unslot, limit, by, jid, heir or nothing]
    slot_free(effect[2], effect[3], effect[4], effect[5])
  end
  function kinds.spent(effect)  -- [spent, limit, by, n, per, points beyond the estimate]
    points_spent(effect[2], effect[3], tonumber(effect[4]), tonumber(effect[5]), tonumber(effect[6]))
  end
  function kinds.relock(effect)  -- [relock, phase, scope, key, jid, once_for]
    lock_again(effect[2], effect[3], effect[4], effect[5])
  end
  function kinds.unlatest(effect)
    redis.call('HDEL', key('latest'), effect[2])
  end
  function kinds.undebounce(effect)  -- see lib/admit.lua
    local pending = key('debounce') .. effect[2]
    local burst = redis.call('HGET', pending, effect[3])
    if burst and string.match(burst, '^%S+ (%S+) ') == effect[4] then
      redis.call('HDEL', pending, effect[3])
    end
  end
  function kinds.result(effect)
    redis.call('SET', own_key(effect[2]), effect[4], 'PX', effect[3])
    redis.call('PUBLISH', effect[5], '1')
  end
  return {needing = needing, let_go = let_go, parked_row = parked_row, lock_holder = lock_holder, hand_on = hand_on,
    hand_slots = hand_slots, slot_free = slot_free}
end

local function kinds_of_effects()
  if not kinds then
    prepare_effects()
  end
  return kinds
end

local function made_ends_of_keys()
  -- include key_ends
  local function free()
    free_keys(kinds_of_effects, note_broken)
  end
  return {finish = finish_key, free = free}
end

local function made_ends_of_places()
  -- include place_ends
  local function free()
    free_places(function(name, by)
      kinds_of_effects()
      hand_on_places(name, by)
    end, note_broken)
  end
  return {finish = finish_places, free = free}
end

function carry_out(payload, ending, text)
  if text == '' then
    return
  end
  if string.byte(text) == 42 then
    ends_of_keys = ends_of_keys or made_ends_of_keys()
    if ends_of_keys.finish(payload, ending, text) then
      return
    end
  elseif string.byte(text) == 126 then
    ends_of_places = ends_of_places or made_ends_of_places()
    if ends_of_places.finish(payload, ending, text) then
      return
    end
  end
  kinds_of_effects()
  if batches.finish(text) then
    return
  end
  local fine, effects = pcall(cjson.decode, text)
  if not fine or type(effects) ~= 'table' then
    return note_broken(payload, ending, text, 'not a JSON list')
  end
  for _, effect in ipairs(effects) do
    local kind = type(effect) == 'table' and kinds[effect[1]]
    local done, problem = false, 'unknown kind of effect'
    if kind then
      done, problem = pcall(kind, effect)
    end
    if not done then
      note_broken(payload, ending, text, problem)
    end
  end
end

local function finish_effects()
  local done, problem = true, nil
  if ends_of_keys then
    ends_of_keys.free()
  end
  if ends_of_places then
    ends_of_places.free()
  end
  if batches then
    done, problem = pcall(batches.flush)
  end
  if not done then
    note_broken('', 'counted', '[]', problem)
  end
end
