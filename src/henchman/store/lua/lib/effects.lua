-- What happens in the same breath as a job's end, or as another change of it: gives carry_out(payload, ending, text),
-- text being a JSON list of effects, each [kind, …], or '+' and the end of a run that went well (lib/batch.lua). Kinds
-- are a closed list and idempotent (work/effects.py). One that fails goes to the broken list with its job, and stops
-- nobody. KEYS[first] is the first of the keys that effects share (store/effects.py); those that belong to one job
-- alone stand in KEYS after the first `before`, and an effect names
-- the one it means. With `many` batches are counted once for all of them, by the second function that it gives.
local function carrying_out(first, before, many)
  local own
  local kinds = {}
  local batches = batching(first + 3, many)

  local function gather()  -- the keys of single jobs, by name
    if not own then
      own = {}
      for at = before + 1, #KEYS do
        own[KEYS[at]] = KEYS[at]
      end
    end
  end

  function kinds.uncancel(effect)
    redis.call('ZREM', KEYS[first], effect[2])
  end

  function kinds.cron_done(effect)
    local mark = redis.call('HGET', KEYS[first + 2], effect[2])
    if mark and string.match(mark, '^%S+ (.*)$') == effect[3] then  -- else the mark is another job's
      redis.call('HDEL', KEYS[first + 2], effect[2])
    end
  end

  function kinds.uniterate(effect)
    gather()
    redis.call('UNLINK', own[effect[2]])
  end

  function kinds.result(effect)
    gather()
    redis.call('SET', own[effect[2]], effect[4], 'PX', effect[3])
    redis.call('PUBLISH', effect[5], '1')
  end

  kinds.track, kinds.said = batches.track, batches.said

  local function note(payload, ending, text, problem)
    local told = cjson.encode({unit = payload, ending = ending, effects = text, error = in_words(problem)})
    redis.pcall('LPUSH', KEYS[first + 1], told)
    redis.pcall('LTRIM', KEYS[first + 1], 0, 999)
  end

  local function carry_out(payload, ending, text)
    if many and batches.finish(text) then
      return
    end
    local fine, effects = pcall(cjson.decode, text)
    if not fine or type(effects) ~= 'table' then
      return note(payload, ending, text, 'not a JSON list')
    end
    for _, effect in ipairs(effects) do
      local kind = type(effect) == 'table' and kinds[effect[1]]
      local done, problem = false, 'unknown kind of effect'
      if kind then
        done, problem = pcall(kind, effect)
      end
      if not done then
        note(payload, ending, text, problem)
      end
    end
  end

  return carry_out, function()  -- with `many`: after the last one
    local done, problem = pcall(batches.flush)
    if not done then
      note('', 'counted', '[]', problem)
    end
  end
end
