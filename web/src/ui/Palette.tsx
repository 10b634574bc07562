import { Combobox, Loader, Modal, TextInput, useCombobox } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useEffect, useMemo, useState } from "react";
import { useNavigate } from "react-router";
import { api } from "../api/client";
import { useI18n } from "../i18n";
import { visible } from "../screens";
import { Icon, type IconName } from "./icons";
import { address, useEnvironment, useMe } from "./scope";

interface Hit {
  to: string;
  title: string;
  kind: string;
  icon: IconName;
}

// The settings of the tenant, as its screen lists them.
const settings = [
  "four_eyes",
  "require_second_factor",
  "assist",
  "impact_gate",
  "impact_threshold",
  "access_request",
  "anomalies",
  "replay",
] as const;

const decisionId = /^[0-9a-f]{8}-[0-9a-f-]{27}$/i;

/** Finds any screen, policy, resource, bouncer or decision by a part of its name or by its id. */
export default function Palette({ close }: { close: () => void }) {
  const { t } = useI18n();
  const { me, can } = useMe();
  const environment = useEnvironment();
  const navigate = useNavigate();
  const combobox = useCombobox({ defaultOpened: true });
  const [text, setText] = useState("");
  const [asked] = useDebouncedValue(text.trim(), 150);

  const policies = api.useQuery(
    "get",
    "/api/v1/policies",
    { params: { query: { environment, limit: 20, name: asked || undefined } } },
    // What was found stays while the next letters are looked for: Enter opens what one sees.
    { enabled: can("policies:read"), placeholderData: (before) => before },
  );
  const resources = api.useQuery(
    "get",
    "/api/v1/resources",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: can("resources:read") },
  );
  const bouncers = api.useQuery(
    "get",
    "/api/v1/bouncers",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: can("bouncers:read") },
  );

  const hits = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    const matches = (...words: (string | undefined)[]) => words.some((w) => w?.toLowerCase().includes(wanted));
    const found: Hit[] = [];
    for (const s of visible(me.permissions, me.roles)) {
      if (s.nav && matches(t(s.nav.title), s.path)) {
        found.push({ to: s.path, title: t(s.nav.title), kind: t("shell.screen"), icon: s.nav.icon });
      }
    }
    if (decisionId.test(wanted)) {
      found.unshift({ to: `/decisions/${wanted}`, title: wanted, kind: t("shell.decision"), icon: "decision" });
    }
    if (wanted) {
      for (const name of me.permissions.includes("tenants:read") ? settings : []) {
        const title = t(`nav.setting_${name}`);
        if (matches(title)) {
          found.push({ to: `/tenant#${name}`, title, kind: t("shell.setting"), icon: "settings" });
        }
      }
      for (const p of policies.data?.policies ?? []) {
        if (matches(p.name, p.description)) {
          found.push({ to: `/policies/${p.id}`, title: p.name, kind: t("shell.policy"), icon: "policy" });
        }
      }
      for (const r of resources.data?.resources ?? []) {
        if (matches(r.name, r.path, r.original_host)) {
          found.push({ to: `/resources/${r.id}`, title: r.name, kind: t("shell.resource"), icon: "resource" });
        }
      }
      for (const b of bouncers.data?.bouncers ?? []) {
        if (matches(b.name, b.hostname)) {
          found.push({ to: `/bouncers/${b.id}`, title: b.name, kind: t("shell.bouncer"), icon: "gate" });
        }
      }
    }
    return found.slice(0, 40);
  }, [text, t, me, policies.data, resources.data, bouncers.data]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the first entry is chosen whenever the entries change
  useEffect(() => void combobox.selectFirstOption(), [hits]);

  return (
    <Modal.Root opened onClose={close} size="lg">
      <Modal.Overlay backgroundOpacity={0.45} />
      <Modal.Content aria-label={t("shell.search")}>
        <Modal.Body p="sm">
          <Combobox
            store={combobox}
            withinPortal={false}
            onOptionSubmit={(to) => {
              close();
              const [path = "/", hash] = to.split("#");
              void navigate(address(path, environment) + (hash ? `#${hash}` : ""));
            }}
          >
            <Combobox.EventsTarget>
              <TextInput
                data-autofocus
                size="md"
                aria-label={t("shell.search")}
                placeholder={t("shell.searchHint")}
                leftSection={<Icon name="search" />}
                rightSection={policies.isFetching ? <Loader size="xs" /> : null}
                value={text}
                onChange={(event) => setText(event.currentTarget.value)}
              />
            </Combobox.EventsTarget>
            <Combobox.Options mt="xs" mah={420} style={{ overflowY: "auto" }} aria-label={t("shell.search")}>
              {hits.map((h) => (
                <Combobox.Option key={h.to} value={h.to}>
                  <span className="gh-row">
                    <Icon name={h.icon} />
                    <span>{h.title}</span>
                    <span className="gh-dim" style={{ marginLeft: "auto" }}>
                      {h.kind}
                    </span>
                  </span>
                </Combobox.Option>
              ))}
              {hits.length === 0 && <Combobox.Empty>{t("common.nothingMatches")}</Combobox.Empty>}
            </Combobox.Options>
          </Combobox>
        </Modal.Body>
      </Modal.Content>
    </Modal.Root>
  );
}
