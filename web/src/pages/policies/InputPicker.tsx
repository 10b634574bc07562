import { Button } from "@mantine/core";
import { lazy, Suspense, useState } from "react";
import { useI18n } from "../../i18n";
import { Icon } from "../../ui/icons";
import type { Policy } from "./policy";

const InputMenu = lazy(() => import("./InputMenu"));

/** Loads an input from a test of the control, a scenario of the simulator, or a decision that was really made. */
export function InputPicker(props: { policy: Policy; pick: (input: Record<string, unknown>) => void }) {
  const { t } = useI18n();
  const [wanted, setWanted] = useState(false);
  const button = (
    <Button
      size="compact-sm"
      variant="default"
      rightSection={<Icon name="chevron" size={12} />}
      aria-haspopup="menu"
      aria-expanded={false}
      onClick={() => setWanted(true)}
    >
      {t("workbench.load")}
    </Button>
  );
  if (!wanted) return button;
  return (
    <Suspense fallback={button}>
      <InputMenu {...props} />
    </Suspense>
  );
}
