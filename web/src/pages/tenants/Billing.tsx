import { Button, PasswordInput, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog, Dialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { useMe } from "../../ui/scope";
import { Bill } from "./Usage";

type Billing = Schemas["MeteringBilling"];
const members = ["line1", "postal_code", "city", "state", "country"] as const;

/** What the period costs so far, how it is paid, and where the invoice goes. */
export default function BillingScreen() {
  const { t } = useI18n();
  const { me, can } = useMe();
  const billing = api.useQuery("get", "/api/v1/tenants/{tenant_id}/billing", {
    params: { path: { tenant_id: me.tenant_id } },
  });
  return (
    <>
      <PageHeader title={t("tenants.billing")} about={t("tenants.billingAbout")}>
        {billing.data && can("billing:write") && <Actions billing={billing.data} />}
      </PageHeader>
      <div className="gh-grid">
        <div className="gh-half-wide">
          <Bill id={me.tenant_id} />
        </div>
        <Panel title={t("tenants.address")} className="gh-half-wide">
          {billing.data && <Address billing={billing.data} />}
        </Panel>
      </div>
    </>
  );
}

function Address({ billing }: { billing: Billing }) {
  const { t } = useI18n();
  const address = billing.billing_address;
  if (!address) return <span className="gh-dim">{t("tenants.addressNone")}</span>;
  return (
    <dl className="gh-facts">
      {members
        .filter((m) => address[m])
        .map((m) => (
          <div key={m} style={{ display: "contents" }}>
            <dt>{t(`tenants.address_${m}`)}</dt>
            <dd>{address[m]}</dd>
          </div>
        ))}
    </dl>
  );
}

function Actions({ billing }: { billing: Billing }) {
  const { t } = useI18n();
  const { me } = useMe();
  const queries = useQueryClient();
  const [asked, setAsked] = useState<"" | "address" | "payment" | "remove">("");
  const change = api.useMutation("put", "/api/v1/tenants/{tenant_id}/billing", {
    onSuccess: () => {
      setAsked("");
      refresh(queries, "tenant");
    },
  });
  const close = () => {
    setAsked("");
    change.reset();
  };
  const save = (body: Schemas["MeteringChange"]) =>
    change.mutate({ params: { path: { tenant_id: me.tenant_id } }, body });
  const submitAddress = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const billing_address = Object.fromEntries(members.map((m) => [m, String(form.get(m)).trim()]));
    save({ billing_address });
  };
  const submitPayment = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    save({ payment_method: String(new FormData(event.currentTarget).get("payment-token")).trim() });
  };
  return (
    <>
      <Button variant="default" onClick={() => setAsked("address")}>
        {t("tenants.addressEdit")}
      </Button>
      <Button variant="default" onClick={() => setAsked("payment")}>
        {t("tenants.paymentChange")}
      </Button>
      {billing.payment_method_set && (
        <Button variant="default" onClick={() => setAsked("remove")}>
          {t("tenants.paymentRemove")}
        </Button>
      )}
      {asked === "address" && (
        <Dialog opened close={close} title={t("tenants.address")}>
          <form onSubmit={submitAddress}>
            <Stack gap="sm">
              {members.map((m, i) => (
                <TextInput
                  key={m}
                  label={t(`tenants.address_${m}`)}
                  name={m}
                  defaultValue={billing.billing_address?.[m]}
                  maxLength={200}
                  data-autofocus={i === 0 || undefined}
                />
              ))}
              {change.error ? <ErrorPanel error={change.error} /> : null}
              <Button type="submit" loading={change.isPending}>
                {t("common.save")}
              </Button>
            </Stack>
          </form>
        </Dialog>
      )}
      {asked === "payment" && (
        <Dialog opened close={close} title={t("tenants.paymentChange")}>
          <form onSubmit={submitPayment}>
            <Stack gap="sm">
              <PasswordInput
                label={t("tenants.paymentToken")}
                description={t("tenants.paymentAbout")}
                name="payment-token"
                autoComplete="off"
                required
                data-autofocus
                visibilityToggleButtonProps={{ "aria-label": t("users.showPassword") }}
              />
              {change.error ? <ErrorPanel error={change.error} /> : null}
              <Button type="submit" loading={change.isPending}>
                {t("common.save")}
              </Button>
            </Stack>
          </form>
        </Dialog>
      )}
      <ConfirmDialog
        opened={asked === "remove"}
        close={close}
        title={t("tenants.paymentRemove")}
        object={billing.subscription_id}
        about={t("tenants.paymentAbout")}
        action={t("tenants.paymentRemove")}
        busy={change.isPending}
        error={change.error}
        confirm={() => save({ payment_method: null })}
      />
    </>
  );
}
