import builder from "./builder";
import common from "./common";
import dashboard from "./dashboard";
import decisions from "./decisions";
import libraries from "./libraries";
import login from "./login";
import nav from "./nav";
import policies from "./policies";
import shell from "./shell";
import workbench from "./workbench";

// The areas that the sign-in form, the frame, the dashboard, the workbench and the decisions use.
export default {
  builder,
  common,
  dashboard,
  decisions,
  libraries,
  login,
  nav,
  policies,
  shell,
  workbench,
};
