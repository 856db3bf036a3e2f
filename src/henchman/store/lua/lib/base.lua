-- The server's time, times as text, and errors as words: what most scripts need.
local function server_now()
  local t = redis.call('TIME')
  return tonumber(t[1]) + tonumber(t[2]) / 1000000
end

-- A time as a score or JSON number: seconds with microseconds, always with a decimal point.
local function as_text(seconds)
  return string.format('%.6f', seconds)
end

-- What `pcall` gave in place of a result, as text.
local function in_words(problem)
  return type(problem) == 'table' and problem.err or tostring(problem)
end
