const coverage = {
  about: "Which control covers which resource, and where there are gaps.",
  cell_bound: "Control for this resource",
  cell_draft: "Draft",
  cell_wide: "Control for the whole tenant",
  controls: "Controls",
  cut: "There is more than the picture has room for. The table shows everything.",
  gap: "No control of its own",
  gapsOnly: "Gaps only",
  matrix: "Controls across, resources down",
  picture: "Controls and resources",
  protected: "Protected",
  protection: "Protection",
  summary: {
    one: "{count} resource, {gaps} without an active control of its own; {controls} controls, {wide} of them active for the whole tenant.",
    other:
      "{count} resources, {gaps} without an active control of their own; {controls} controls, {wide} of them active for the whole tenant.",
  },
  table: "Resources and their controls",
};
export default coverage;
