-- Times as payloads and callers write them.
-- A time as payloads hold it: whole milliseconds, in the digits that Ruby and Python write.
local function as_moment(seconds)
  return (string.gsub(string.gsub(string.format('%.3f', seconds), '0+$', ''), '%.$', '.0'))
end

-- When a job is due: "" now, "+s" in s seconds, else a Unix time; as a score, or "".
local function as_due(when, now)
  if when == '' then
    return ''
  end
  return as_text(string.sub(when, 1, 1) == '+' and now + tonumber(when) or tonumber(when))
end
