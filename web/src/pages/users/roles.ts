import { useI18n } from "../../i18n";
import { useMe } from "../../ui/scope";

const roles = ["admin", "policy_author", "resource_manager", "operator", "auditor", "viewer"];

/** The roles that carry permissions, with their names; platform_admin for those who have it themselves. */
export function useRoles() {
  const { word } = useI18n();
  const { me } = useMe();
  const name = (role: string) => word("users", "role", role);
  const offered = me.roles.includes("platform_admin") ? ["platform_admin", ...roles] : roles;
  return { name, options: offered.map((value) => ({ value, label: name(value) })) };
}
