package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// wiring is what a scheduler's configuration says of an extender.
type wiring struct {
	URLPrefix        string   `json:"urlPrefix"`
	FilterVerb       string   `json:"filterVerb"`
	PrioritizeVerb   string   `json:"prioritizeVerb"`
	PreemptVerb      string   `json:"preemptVerb"`
	BindVerb         string   `json:"bindVerb"`
	Weight           int64    `json:"weight"`
	NodeCacheCapable bool     `json:"nodeCacheCapable"`
	Ignorable        bool     `json:"ignorable"`
	ManagedResources []string `json:"managedResources"`
	TimeoutMillis    int64    `json:"timeoutMillis"`
}

type question struct {
	Extender json.RawMessage     `json:"extender"`
	Verb     string              `json:"verb"` // filter, prioritize, preempt, bind or look
	Pod      *v1.Pod             `json:"pod"`
	Nodes    []*v1.Node          `json:"nodes"`
	Running  []*v1.Pod           `json:"running"` // on those nodes; victims are named by their uids
	Victims  map[string]*victims `json:"victims"`
	Target   string              `json:"target"` // the node of a binding
}

type victims struct {
	UIDs       []string `json:"uids"`
	Violations int64    `json:"violations"`
}

// answer is what kube-scheduler's own client made of the extender's reply.
type answer struct {
	Error        string                       `json:"error"`
	Passed       []string                     `json:"passed"`
	Intact       bool                         `json:"intact"` // every node that passed is the object that was sent
	Failed       map[string]string            `json:"failed"`
	Unresolvable map[string]string            `json:"unresolvable"`
	Scores       *extenderv1.HostPriorityList `json:"scores"`
	Weight       int64                        `json:"weight"`
	Victims      map[string]*victims          `json:"victims"`
	Is           map[string]bool              `json:"is"`
}

// ask answers questions until the input ends. An extender lives as long as the process, as in kube-scheduler, so that
// its connections are kept open.
func ask(in io.Reader, out io.Writer) error {
	extenders := map[string]fwk.Extender{}
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var asked question
		if err := decoder.Decode(&asked); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		extender, known := extenders[string(asked.Extender)]
		if !known {
			var err error
			if extender, err = newExtender(asked.Extender); err != nil {
				return err
			}
			extenders[string(asked.Extender)] = extender
		}
		reply, err := answerOf(extender, &asked)
		if err != nil {
			return err
		}
		if err := encoder.Encode(reply); err != nil {
			return err
		}
	}
}

func newExtender(raw json.RawMessage) (fwk.Extender, error) {
	var wired wiring
	if err := json.Unmarshal(raw, &wired); err != nil {
		return nil, err
	}
	managed := []config.ExtenderManagedResource{}
	for _, name := range wired.ManagedResources {
		managed = append(managed, config.ExtenderManagedResource{Name: name, IgnoredByScheduler: true})
	}
	return scheduler.NewHTTPExtender(&config.Extender{
		URLPrefix:        wired.URLPrefix,
		FilterVerb:       wired.FilterVerb,
		PrioritizeVerb:   wired.PrioritizeVerb,
		PreemptVerb:      wired.PreemptVerb,
		BindVerb:         wired.BindVerb,
		Weight:           wired.Weight,
		NodeCacheCapable: wired.NodeCacheCapable,
		Ignorable:        wired.Ignorable,
		ManagedResources: managed,
		HTTPTimeout:      metav1.Duration{Duration: time.Duration(wired.TimeoutMillis) * time.Millisecond},
	})
}

func answerOf(extender fwk.Extender, asked *question) (*answer, error) {
	reply := &answer{}
	var err error
	switch asked.Verb {
	case "filter":
		err = filter(extender, asked, reply)
	case "prioritize":
		reply.Scores, reply.Weight, err = extender.Prioritize(asked.Pod, infosOf(asked.Nodes))
	case "preempt":
		err = preempt(extender, asked, reply)
	case "bind":
		err = extender.Bind(&v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: asked.Pod.Namespace, Name: asked.Pod.Name, UID: asked.Pod.UID},
			Target:     v1.ObjectReference{Kind: "Node", Name: asked.Target},
		})
	case "look":
		reply.Is = map[string]bool{
			"interested":  extender.IsInterested(asked.Pod),
			"ignorable":   extender.IsIgnorable(),
			"binder":      extender.IsBinder(),
			"prioritizer": extender.IsPrioritizer(),
			"filter":      extender.IsFilter(),
			"preempting":  extender.SupportsPreemption(),
		}
	default:
		return nil, fmt.Errorf("no verb %q", asked.Verb)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply, nil
}

func filter(extender fwk.Extender, asked *question, reply *answer) error {
	passed, failed, unresolvable, err := extender.Filter(asked.Pod, infosOf(asked.Nodes))
	if err != nil {
		return err
	}
	sent := map[string]*v1.Node{}
	for _, node := range asked.Nodes {
		sent[node.Name] = node
	}
	reply.Passed, reply.Intact = []string{}, true
	for _, info := range passed {
		name := info.Node().Name
		reply.Passed = append(reply.Passed, name)
		reply.Intact = reply.Intact && apiequality.Semantic.DeepEqual(sent[name], info.Node())
	}
	reply.Failed, reply.Unresolvable = failed, unresolvable
	return nil
}

func preempt(extender fwk.Extender, asked *question, reply *answer) error {
	running := map[types.UID]*v1.Pod{}
	for _, pod := range asked.Running {
		running[pod.UID] = pod
	}
	candidates := map[string]*extenderv1.Victims{}
	for node, wanted := range asked.Victims {
		candidate := &extenderv1.Victims{NumPDBViolations: wanted.Violations}
		for _, uid := range wanted.UIDs {
			candidate.Pods = append(candidate.Pods, running[types.UID(uid)])
		}
		candidates[node] = candidate
	}
	snapshot := schedulercache.NewSnapshot(asked.Running, asked.Nodes)
	kept, err := extender.ProcessPreemption(asked.Pod, candidates, snapshot.NodeInfos())
	if err != nil {
		return err
	}
	reply.Victims = map[string]*victims{}
	for node, chosen := range kept {
		found := &victims{UIDs: []string{}, Violations: chosen.NumPDBViolations}
		for _, pod := range chosen.Pods {
			found.UIDs = append(found.UIDs, string(pod.UID))
		}
		reply.Victims[node] = found
	}
	return nil
}

func infosOf(nodes []*v1.Node) []fwk.NodeInfo {
	infos := []fwk.NodeInfo{}
	for _, node := range nodes {
		info := framework.NewNodeInfo()
		info.SetNode(node)
		infos = append(infos, info)
	}
	return infos
}
