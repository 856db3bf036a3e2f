local function in_words(problem)
  return type(problem) == 'table' and problem.err or tostring(problem)
end
