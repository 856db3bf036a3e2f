-- The server's time, times as text, and errors as words: what most scripts need.
local clock
local function server_now()  -- one moment for all of a script
  if not clock then
    local t = redis.call('TIME')
    clock = tonumber(t[1]) + tonumber(t[2]) / 1000000
  end
  return clock
end

-- A time as a score or JSON number: seconds with microseconds, always with a decimal point.
local function as_text(seconds)
  return string.format('%.6f', seconds)
end

-- What `pcall` gave in place of a result, as text.
local function in_words(problem)
  return type(problem) == 'table' and problem.err or tostring(problem)
end
