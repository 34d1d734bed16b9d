package table

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/plan"
	_ "github.com/millrace-ml/millrace/plan/planners" // registers the planners, for lookup by name
)

// Uses says which Options change what an experiment prints, and whether it belongs to the four papers.
type Uses struct {
	Profiles bool     // it uses published profiles
	Others   bool     // it reproduces sources other than the four papers, and is not on their page
	Planners []string // planners that get Formula and Set
	Fixed    []string // settings that the experiment itself gives to planners
	// Script lists further settings of a published script, with the formula "artifact".
	Script []plan.Setting
}

// Check refuses options that the experiment does not use, and those without effect.
func (e Experiment) Check(o Options) error {
	if err := e.check(o); err != nil {
		return fmt.Errorf("reproduce: %s: %w", e.Name, err)
	}
	return nil
}

func (e Experiment) check(o Options) error {
	asks := func(u Uses) bool { return len(u.Planners) > 0 }
	if o.Profiles != "" {
		if !e.uses.Profiles {
			return fmt.Errorf("--profiles: it uses no published profiles; %s", those(func(u Uses) bool { return u.Profiles }))
		}
		info, err := os.Stat(o.Profiles)
		if err != nil {
			return fmt.Errorf("--profiles: %w; give the folder with the published profiles", err)
		}
		if !info.IsDir() {
			return fmt.Errorf("--profiles %s: it is a file; give the folder with the published profiles", o.Profiles)
		}
	}
	switch {
	case o.Formula == "" && len(o.Set) == 0:
		return nil
	case !asks(e.uses):
		flag := "--formula " + o.Formula
		if o.Formula == "" {
			flag = "--set " + slices.Min(slices.Collect(maps.Keys(o.Set)))
		}
		return fmt.Errorf("%s: it asks no planner; %s", flag, those(asks))
	case o.Formula != "" && o.Formula != "paper" && o.Formula != "artifact":
		return fmt.Errorf("--formula is %q; it is paper or artifact", o.Formula)
	case o.Formula == "artifact" && !slices.ContainsFunc(e.uses.Planners, hasCode):
		return fmt.Errorf("--formula artifact: the authors of %s published no code, so there is only paper",
			strings.Join(e.uses.Planners, ", "))
	}
	if name := firstOf(o.Set, e.uses.Script); o.Formula == "paper" && name != "" {
		return fmt.Errorf("--set %s=%s: it is told the published script, by --formula artifact", name, o.Set[name])
	}
	return e.uses.checkSet(o.Set)
}

// firstOf returns the first name in `set` that is one of the settings; "" means none.
func firstOf(set map[string]string, settings []plan.Setting) string {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if slices.ContainsFunc(settings, func(s plan.Setting) bool { return s.Name == name }) {
			return name
		}
	}
	return ""
}

// settings returns the settings that the user may give.
func (u Uses) settings() (all []plan.Setting) {
	for _, p := range u.Planners {
		all = append(all, SettingsOf(p)...)
	}
	return append(all, u.Script...)
}

// checkSet refuses settings that no planner has, or that the experiment fixes. The planners check the values.
func (u Uses) checkSet(set map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !slices.ContainsFunc(u.settings(), func(s plan.Setting) bool { return s.Name == name }) {
			var all []string
			for _, s := range u.settings() {
				if !slices.Contains(u.Fixed, s.Name) && !slices.Contains(all, s.Name) {
					all = append(all, s.Name)
				}
			}
			return fmt.Errorf("--set %s=%s: %s has no such setting; there are %s", name, set[name],
				strings.Join(u.Planners, " or "), strings.Join(all, ", "))
		}
		if slices.Contains(u.Fixed, name) {
			return fmt.Errorf("--set %s=%s: the experiment sets %s itself", name, set[name], name)
		}
	}
	return nil
}

// SettingsOf returns the settings of a planner; none if the planner is not in this build.
func SettingsOf(planner string) []plan.Setting {
	p, err := plan.LookupPlanner(planner)
	if err != nil {
		return nil
	}
	return p.Settings
}

func has(planner, setting string) bool {
	return slices.ContainsFunc(SettingsOf(planner), func(s plan.Setting) bool { return s.Name == setting })
}

// hasCode says whether a planner's authors published code.
func hasCode(planner string) bool {
	p, err := plan.LookupPlanner(planner)
	return err == nil && p.Artifact != ""
}

// those returns the names of the experiments that use an option.
func those(use func(Uses) bool) string {
	var names []string
	for _, e := range Experiments() {
		if use(e.uses) {
			names = append(names, e.Name)
		}
	}
	return "these do: " + strings.Join(names, ", ")
}

// OfSettings returns err if it says that a planner refused a setting. Such an error ends an experiment. Other reasons
// for a missing plan go into the experiment's row.
func OfSettings(err error) error {
	var refused *plan.SettingError
	if errors.As(err, &refused) {
		return err
	}
	return nil
}
