-- What jobs wait for: the success of another one. A need is a scope and a name: of a business key (phases o and f); of a
-- job by its jid, in the scope ""; of a step, in the scope "batch:<id>". Who waits has a row among the parked and a place
-- in the line "n<scope>\n<name>" of each need that is missing; with several needs, `hm:needs:<jid>` holds those lines.
-- Success lets go of who waits here; whatever else becomes of a need is written down for the stager (worker/decide.py),
-- which asks what each of those who wait wants to become of it.
-- include lock_ends
-- include needs_asked
-- include bytes
local IN_PLACE = 100  -- who wait for one need and are let go in the script that meets it; more are left to the stager
local IN_ALL = 500  -- the same, of all needs that one script meets

local needs_of_call
function needing()  -- declared in lib/lock_ends.lua, which hands keys on
  if needs_of_call then
    return needs_of_call
  end
  local needs, may, room = asking(), IN_ALL, MOST_BYTES
  needs_of_call = needs

  -- A job waits for the need of `line` no longer, and goes its way if that was its last one; how large it is. An error
  -- when its queue refuses it: then nothing was changed.
  function needs.meet(jid, line)
    local queue, due, reason, tracked, payload = parked_row(jid)
    local several = key('needs') .. jid
    if not queue or string.sub(reason, 1, 5) ~= 'needs' then
      redis.call('DEL', several)  -- of a job whose row was deleted by hand nothing else would take it away
      return 0  -- it ended meanwhile, or waits for something else
    end
    local left = redis.call('SCARD', several)
    if left > 0 and redis.call('SISMEMBER', several, line) == 0 then
      return #payload
    end
    if left > 1 then
      redis.call('SREM', several, line)
      return #payload
    end
    let_go('n', queue, due, payload, tracked)
    unpark(jid, due)
    redis.call('DEL', several)
    redis.call('ZREM', key('parked_until'), jid)
    return #payload
  end

  -- A need is met: who waits for it is let go, here or, where they are many, by the stager.
  function needs.met(scope, name)
    local line = 'n' .. scope .. '\n' .. name
    local waiting_line = key('awaits') .. line
    local count = redis.call('ZCARD', waiting_line)
    if count > 0 and count <= math.min(IN_PLACE, may) then
      for _, jid in ipairs(redis.call('ZRANGE', waiting_line, 0, -1)) do
        if room <= 0 then
          break
        end
        local fine, size = pcall(needs.meet, jid, line)
        if fine then  -- else the stager tries again
          redis.call('ZREM', waiting_line, jid)
          room = room - size
        end
      end
      may, count = may - count, redis.call('ZCARD', waiting_line)
    end
    if count > 0 then
      local number = redis.call('INCR', key('token'))
      local ready = key('ready') .. number
      redis.call('RENAME', waiting_line, ready)
      redis.call('RPUSH', key('releases'), number .. '\n' .. scope .. '\n' .. name)
    end
  end

  -- A need became "dead" or is "over" without success: the stager decides about who waits for it by now, if anybody does.
  function needs.unmet(scope, name, how)
    local waiting_line = key('awaits') .. 'n' .. scope .. '\n' .. name
    if redis.call('EXISTS', waiting_line) == 1 then
      how = how .. ' ' .. (redis.call('GET', key('token')) or '0')
      redis.call('RPUSH', key('decide'), how .. '\n\n0\n' .. scope .. '\n' .. name)
    end
  end

  -- The job that had a key has it no longer.
  function needs.ended(phase, scope, name, letter)
    local waiting_line = key('awaits') .. 'n' .. scope .. '\n' .. name
    if redis.call('EXISTS', waiting_line) == 0 then
      return
    end
    redis.call('ZREM', key('doubt'), phase .. ' ' .. scope .. '\n' .. name)
    if letter == 's' then
      needs.met(scope, name)
    else
      needs.unmet(scope, name, 'over')
    end
  end

  -- A job that was to have a key never comes: nobody has that key, unless another job does.
  function needs.never(scope, name, jid)
    if scope == '' then
      once_remember(scope, name, 604800, 'x', jid)
    end
    if needs.state(scope, name) ~= 'l' then
      needs.unmet(scope, name, 'over')
    end
  end

  -- The state of a step: s, f, x, d, or "" it lives again. Nothing is written of a batch that is gone.
  function needs.step(batch, step, letter)
    local facts = key('batch_base') .. batch
    local steps = facts .. ':steps'
    if redis.call('EXISTS', facts) == 0 then
      return
    end
    if letter == '' then
      redis.call('HDEL', steps, step)
      return
    end
    redis.call('HSET', steps, step, letter)
    if letter == 's' then
      needs.met('batch:' .. batch, step)
    else
      needs.unmet('batch:' .. batch, step, letter == 'd' and 'dead' or 'over')
    end
  end

  -- What readers are told of a parked job: jid, row, and what it still waits for, where it has several needs.
  function needs.shown(jid)
    local row, several = redis.call('HGET', key('parked'), jid), key('needs') .. jid
    return {jid, row, row and redis.call('SMEMBERS', several) or {}}, row and #row or 0
  end

  return needs
end
