package simulate

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/report"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/simulator"
	"github.com/gatehouse-dev/gatehouse/internal/simulator/record"
)

// SimulatedPolicy names a policy and the environment that it must be in.
type SimulatedPolicy struct {
	Environment string `query:"environment" required:"true" enum:"sandbox,production" doc:"The policy's environment; a policy of the other environment is not found"`
	ID          int64  `path:"policy_id" minimum:"1" doc:"Id of the policy"`
}

type loadableIn struct {
	Environment string `query:"environment" required:"true" enum:"sandbox,production" doc:"Environment whose policies are listed"`
}

// SimulationRequest is the body of POST /pis/policies/{policy_id}/simulate.
type SimulationRequest struct {
	Input      record.Object `json:"input_json,omitzero" doc:"The input that the policy reads: user, resource, action, context and others. Fields of the linked resource and the stored user, which a live decision has, are added where they are missing. Optional with scenario_id: the scenario's attributes are then the input." example:"{\"user\":{\"role\":\"intern\"},\"action\":{\"method\":\"GET\"}}"`
	TestType   string        `json:"test_type,omitempty" enum:"manual,scenario,regression" doc:"The kind of run; manual by default, or scenario with a scenario_id"`
	ScenarioID *int64        `json:"scenario_id,omitempty" minimum:"1" doc:"A scenario of this policy; the run updates its last_used"`
}

type simulateIn struct {
	SimulatedPolicy
	Body SimulationRequest
}

// RunsPage has the page and the filter of the simulator's history.
type RunsPage struct {
	Decision string `query:"decision" enum:"ALLOW,DENY,MASK,NO_MATCH" doc:"Return the runs with this decision only"`
	Limit    int    `query:"limit" default:"50" minimum:"1" maximum:"200" doc:"Largest number of entries in the answer"`
	Offset   int    `query:"offset" default:"0" minimum:"0" doc:"Number of entries to skip"`
}

// PolicyPath names a policy.
type PolicyPath struct {
	rest.InEnvironment
	ID int64 `path:"policy_id" minimum:"1" doc:"Id of the policy"`
}

type policyRunsIn struct {
	PolicyPath
	rest.Window
	RunsPage
}

type ownRunsIn struct {
	rest.InEnvironment
	rest.Window
	RunsPage
}

func runsFilter(w rest.Window, p RunsPage) (simulator.Filter, error) {
	f := simulator.Filter{Decision: p.Decision, Limit: int64(p.Limit), Offset: int64(p.Offset)}
	var err error
	f.Start, f.End, err = w.Period()
	return f, err
}

// simulator registers runs of controls, their history and exports.
func (h *Handler) simulator(r *rest.Router) {
	tags := []string{"Simulator"}
	rest.Register(r, rest.Op{
		ID: "list-loadable-policies", Method: http.MethodGet, Path: "/pis/policies/loadable", Reach: rest.ReachEnvironment, Permission: "simulator:read", Bearer: true, Tags: tags,
		Summary: "List the policies that can be simulated", Description: "All policies of an environment, in any state, sorted by id; active ones have the state `enabled`.",
	}, func(ctx context.Context, sc scope.Scope, _ *loadableIn) (*rest.JSON[[]simulator.Loadable], error) {
		return rest.Answer(h.Simulator.Loadable(ctx, sc))
	})
	rest.Register(r, rest.Op{
		ID: "list-policy-attributes", Method: http.MethodGet, Path: "/pis/policies/{policy_id}/attributes", Reach: rest.ReachEnvironment, Permission: "simulator:read", Bearer: true, Tags: tags,
		Summary: "List the input fields that a policy reads", Description: "From the references to input in its Rego; types are as far as their use shows.",
	}, func(ctx context.Context, sc scope.Scope, in *PolicyPath) (*rest.JSON[[]lang.Attribute], error) {
		return rest.Answer(h.Simulator.Attributes(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "simulate-policy", Method: http.MethodPost, Path: "/pis/policies/{policy_id}/simulate", Reach: rest.ReachEnvironment, Permission: "simulator:write", Bearer: true, Tags: tags,
		Summary:     "Run a policy on an input",
		Description: "Evaluates this policy alone, whatever its state, and explains the decision. Live counters, the decision log and the cache do not change. Each run is stored in the history and in the audit (`POLICY_SIMULATION_RUN`). `notes` says where a live decision would differ. After 30 seconds, or over the memory limit, the evaluation is cancelled: 400, and the run is stored as DENY with its error.",
	}, func(ctx context.Context, sc scope.Scope, in *simulateIn) (*rest.JSON[simulator.Result], error) {
		rest.LiftDeadlines(ctx) // the service has its own
		return rest.Answer(h.Simulator.Simulate(ctx, sc, in.ID, simulator.Request{Input: in.Body.Input, TestType: in.Body.TestType, Scenario: in.Body.ScenarioID}))
	})
	rest.Register(r, rest.Op{
		ID: "list-policy-simulations", Method: http.MethodGet, Path: "/pis/policies/{policy_id}/test-history", Reach: rest.ReachEnvironment, Permission: "simulator:read", Bearer: true, Tags: tags,
		Summary: "List the simulations of a policy", Description: "Newest first, of all users. Runs are stored as long as the audit stores decisions about the policy's resource.",
	}, func(ctx context.Context, sc scope.Scope, in *policyRunsIn) (*rest.JSON[simulator.History], error) {
		f, err := runsFilter(in.Window, in.RunsPage)
		if err != nil {
			return nil, err
		}
		return rest.Answer(h.Simulator.History(ctx, sc, in.ID, f))
	})
	rest.Register(r, rest.Op{
		ID: "list-own-simulations", Method: http.MethodGet, Path: "/pis/test-history", Reach: rest.ReachEnvironment, Permission: "simulator:read", Bearer: true, Tags: tags,
		Summary: "List your simulations", Description: "Newest first, of all policies.",
	}, func(ctx context.Context, sc scope.Scope, in *ownRunsIn) (*rest.JSON[simulator.History], error) {
		f, err := runsFilter(in.Window, in.RunsPage)
		if err != nil {
			return nil, err
		}
		return rest.Answer(h.Simulator.ListOwn(ctx, sc, f))
	})
}

// ScenarioPath names a scenario.
type ScenarioPath struct {
	rest.InEnvironment
	ID int64 `path:"scenario_id" minimum:"1" doc:"Id of the scenario"`
}

type scenarioListIn struct {
	rest.InEnvironment
	PolicyID int64 `query:"policy_id" minimum:"1" doc:"Only scenarios of this policy"`
}

type scenarioCreateIn struct {
	rest.InEnvironment
	Body simulator.ScenarioDraft
}

type scenarioUpdateIn struct {
	ScenarioPath
	Body simulator.ScenarioChange
}

// ScenarioDeleted is the answer to DELETE /pis/scenarios/{scenario_id}.
type ScenarioDeleted struct {
	Message string `json:"message" doc:"What was done"`
}

// scenarios registers the inputs that authors save.
func (h *Handler) scenarios(r *rest.Router) {
	tags, record := []string{"Simulator"}, reflect.TypeFor[simulator.Scenario]()
	rest.Register(r, rest.Op{
		ID: "list-scenarios", Method: http.MethodGet, Path: "/pis/scenarios", Reach: rest.ReachEnvironment, Permission: "simulator:read", Bearer: true, Tags: tags,
		Summary: "List scenarios", Description: "Sorted by id. A scenario belongs to its policy's environment and is hidden while its policy is deleted.",
	}, func(ctx context.Context, sc scope.Scope, in *scenarioListIn) (*rest.JSON[[]simulator.Scenario], error) {
		return rest.Answer(h.Simulator.Scenarios(ctx, sc, in.PolicyID))
	})
	rest.Register(r, rest.Op{
		ID: "create-scenario", Method: http.MethodPost, Path: "/pis/scenarios", Reach: rest.ReachEnvironment, Permission: "simulator:write", Bearer: true, Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Summary: "Create a scenario", Description: "An unknown policy: 404. Keys that contradict each other, such as user and user.role: 400.",
	}, func(ctx context.Context, sc scope.Scope, in *scenarioCreateIn) (*rest.JSON[simulator.Scenario], error) {
		return rest.Answer(h.Simulator.CreateScenario(ctx, sc, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "get-scenario", Method: http.MethodGet, Path: "/pis/scenarios/{scenario_id}", Reach: rest.ReachEnvironment, Permission: "simulator:read", Bearer: true, Tags: tags,
		Summary: "Read a scenario",
	}, func(ctx context.Context, sc scope.Scope, in *ScenarioPath) (*rest.JSON[simulator.Scenario], error) {
		return rest.Answer(h.Simulator.Scenario(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "update-scenario", Method: http.MethodPut, Path: "/pis/scenarios/{scenario_id}", Reach: rest.ReachEnvironment, Permission: "simulator:write", Bearer: true, Tags: tags, Record: record,
		Summary: "Change a scenario", Description: "Members that are not sent keep their value; attributes are replaced as a whole.",
	}, func(ctx context.Context, sc scope.Scope, in *scenarioUpdateIn) (*rest.JSON[simulator.Scenario], error) {
		return rest.Answer(h.Simulator.UpdateScenario(ctx, sc, in.ID, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "delete-scenario", Method: http.MethodDelete, Path: "/pis/scenarios/{scenario_id}", Reach: rest.ReachEnvironment, Permission: "simulator:write", Bearer: true, Tags: tags,
		Summary: "Delete a scenario", Description: "Its runs stay in the history.",
	}, func(ctx context.Context, sc scope.Scope, in *ScenarioPath) (*rest.JSON[ScenarioDeleted], error) {
		if err := h.Simulator.DeleteScenario(ctx, sc, in.ID); err != nil {
			return nil, err
		}
		return rest.Answer(ScenarioDeleted{"Scenario deleted successfully"}, nil)
	})
}

type simulationExportParams struct {
	rest.InEnvironment
	ID     int64  `path:"simulation_id" minimum:"1" doc:"Id of the simulation"`
	Format string `query:"format" required:"true" enum:"json,csv,pdf" doc:"json: the record with its checksum; csv: the record as a table; pdf: a report for people"`
}

// export registers the formats in which a run is exported.
func (h *Handler) export(r *rest.Router) {
	rest.Raw(r, rest.Op{
		ID: "export-simulation", Method: http.MethodPost, Path: "/pis/export/{simulation_id}", Reach: rest.ReachEnvironment, Permission: "simulator:read", Bearer: true, Tags: []string{"Simulator"},
		Summary:     "Export a simulation as a file",
		Description: "The stored run, without secrets, as `application/json`, `text/csv` or `application/pdf`. Another user's simulation needs `audit:read` (403). The checksum is that of the record; the run's audit entry contains it too.",
	}, rest.RawDocs{Params: reflect.TypeFor[simulationExportParams](), Response: reflect.TypeFor[[]byte](), ResponseType: "application/json, text/csv, application/pdf"}, func(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
		id, err := strconv.ParseInt(req.PathValue("simulation_id"), 10, 64)
		if err != nil {
			rest.Fail(w, fault.NotFoundf("no such simulation"))
			return
		}
		run, err := h.Simulator.Run(req.Context(), sc, id)
		if err != nil {
			rest.Fail(w, err)
			return
		}
		file, err := report.Write(run, req.URL.Query().Get("format"), string(sc.Tenant), h.Simulator.Now())
		if err != nil {
			rest.Fail(w, err)
			return
		}
		w.Header()["Content-Disposition"] = []string{`attachment; filename="` + file.Name + `"`}
		rest.WriteBytes(w, http.StatusOK, []string{file.Media}, file.Body)
	})
}
