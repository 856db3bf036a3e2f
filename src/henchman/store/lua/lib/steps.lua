-- Steps of workflows that turn out to be duplicates.
-- include needs

-- A step of a workflow turns out to be a duplicate: for those that wait for it, it has ended as the first one did.
local function step_is_duplicate(batch, ask, answer)
  if ask.step then
    needing().step(batch, ask.step, string.match(answer, '^R %S+ %d ([sf])') or 'x')
  end
end
