import { useI18n } from "../../i18n";
import { useMe } from "../../ui/scope";

const roles = ["admin", "policy_author", "resource_manager", "operator", "auditor", "viewer"];

/** The roles that carry permissions, with their names; platform_admin for those who have it themselves. */
export function useRoles() {
  const { word } = useI18n();
  const { me } = useMe();
  const name = (role: string) => word("users", "role", role);
  const offered = me.roles.includes("platform_admin") ? ["platform_admin", ...roles] : roles;
  const options = offered.map((value) => ({ value, label: name(value) }));
  // Roles of other names are held, too: they stay on offer where they are.
  const offer = (held: string[]) => [
    ...options,
    ...held.filter((role) => !offered.includes(role)).map((value) => ({ value, label: value })),
  ];
  return { name, options, offer };
}
