const login = {
  about: "Use the account of your organisation.",
  action: "Sign in",
  ended: "Your session has ended, or you followed a link. Sign in to go on.",
  linkFailed: "This link has been used, is too old, or was made on another machine. Sign in with your password.",
  password: "Password",
  provider: "Sign in with {name}",
  refused: "The user name or the password is wrong.",
  show: "Show or hide the password",
  title: "Sign in",
  username: "User name",
};
export default login;
