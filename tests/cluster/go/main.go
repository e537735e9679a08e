// One program that is every part of a Kubernetes control plane, chosen by its first argument:
//
//	cluster-binary etcd|kube-apiserver|kube-scheduler|kube-controller-manager|kubectl [flags]
//
// The parts are the upstream ones, linked from their modules; nothing is patched.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // CronJobs name time zones, and the machine may have none

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cluster-binary etcd|kube-apiserver|kube-scheduler|kube-controller-manager|kubectl [flags]")
		os.Exit(2)
	}
	// The commands read os.Args themselves.
	name := os.Args[1]
	os.Args = append([]string{name}, os.Args[2:]...)
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		useClusterDNS(os.Getenv("CLUSTER_DNS"))
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	default:
		fmt.Fprintf(os.Stderr, "cluster-binary: no program %q\n", name)
		os.Exit(2)
	}
}
