const revisions = {
  about: "Each change creates a revision. See which bouncers received it and which enforce it.",
  activated: "Active since",
  active: "Enforces",
  arrived: { one: "{arrived} of {count} bouncer up to date", other: "{arrived} of {count} bouncers up to date" },
  bouncer: "Bouncer",
  converged: "Up to date",
  empty: "No bouncers receive revisions here",
  emptyAbout: "Register a bouncer to see each change of its controls here.",
  error: "Error",
  given: "Received",
  onTheWay: "On the way",
  published: "Published",
  refused: "Refused",
  state: "Convergence",
  status: "State",
};
export default revisions;
