const revisions = {
  about: "A change is a new revision. See who was given it and who enforces it.",
  activated: "Active since",
  active: "Enforces",
  arrived: { one: "{arrived} of {count} bouncer up to date", other: "{arrived} of {count} bouncers up to date" },
  bouncer: "Bouncer",
  converged: "Up to date",
  empty: "No bouncer gets revisions here",
  emptyAbout: "Register a bouncer, and each change of its controls shows up here.",
  error: "Error",
  given: "Was given",
  onTheWay: "On the way",
  published: "Given",
  refused: "Refused",
  state: "Convergence",
  status: "State",
  title: "Revisions",
};
export default revisions;
