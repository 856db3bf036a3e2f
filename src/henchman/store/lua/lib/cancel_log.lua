-- What the counter of cancellations counts, so that a worker reads what is new and not the whole list. Each entry is
-- "<counter> <what>": "+member" was cancelled, "-member" is not any more, "!" the suspects changed, "|" what is
-- paused. A number that is missing (a version that kept no log raised the counter) makes workers read the whole list.
local CANCEL_LOG_MOST = 1000

local function log_cancel(what)
  local log = key('cancel_log')
  redis.call('LPUSH', log, redis.call('INCR', key('cancels')) .. ' ' .. what)
  redis.call('LTRIM', log, 0, CANCEL_LOG_MOST - 1)
end
